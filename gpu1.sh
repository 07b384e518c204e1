source .device/setup.sh; R=$PWD; mkdir -p /tmp/new && tar -C /tmp/new -xJf new.tar.xz; cd /tmp/new; export PYTHONPATH=/tmp/site:/tmp/new
nvidia-smi --query-gpu=name,driver_version --format=csv
timeout 300 python $R/open1.py 2>&1 | grep -v Warn
