"""Everything that is read of a machine, and whether it is fit to measure.  Without torch, without a process on a GPU.

`gpus` and `system` read facts: NVML, amdsmi, files of the kernel.  `limits` judges them by one list, for the doctor,
the preflight of a run and the line of a trial, and names the machine.
"""
