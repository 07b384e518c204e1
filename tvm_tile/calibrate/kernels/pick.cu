// Every step-th element of a tensor, of so many bytes each.

extern "C" __global__ void pick(const unsigned char* from, unsigned char* into, int bytes, int step,
                                int count) {
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  if (own >= count) return;
  for (int i = 0; i < bytes; ++i) into[own * bytes + i] = from[(long long)own * step * bytes + i];
}
