"""Which kernels share one persistent kernel, and where and when each runs in it (Rammer).

The names are Rammer's: a vEU is a thread block that stays on its multiprocessor, an rOperator a
kernel, an rTask one of its blocks. ``coschedule.py`` makes a plan: ``groups.py`` says which kernels
share one, ``choices.py`` what their blocks take there, ``ways.py`` and ``fit.py`` how many run side
by side on a vEU, ``waves.py`` in which step, ``place.py`` on which vEUs, ``workspace.py`` where
values lie. ``check_plan.py`` refuses a plan that would not run rightly before its kernel is
written, and ``records.py`` makes the tables that the kernel reads. ``ahead.py`` says which weights
vEUs ask the second-level cache for while they wait, ``stream.py`` how long kernels take that are
bound by reading them. Both need ``persistent.stream`` in the device record, kernels in half
precision ``persistent.half_precision_pays``; records in which these were not measured leave such
kernels apart.

Control flow is ``rprogram.py``: loops, branches and calls in a persistent kernel, what waits for
what there, and why that is right. ``path.py`` checks that all accesses to the same memory are in
order, ``unrolled.py`` plans some iterations as a straight line, ``idle_veus.py`` moves small
operators away from busy vEUs, and ``ahead_of_loops.py`` moves waits out of loops.
``instructions.py`` has the jumps of each vEU, ``program_records.py`` their table.
``tests/roperators.py`` and ``tests/rprograms.py`` draw plans, ``tests/simulated_plan.py`` and
``tests/simulated_program.py`` run them in random orders.
"""
