"""Plan an experiment, estimate its time, run it and keep its results.

Nothing is imported here: ``gradmix reproduce --list`` reads the presets without waiting for torch.
"""
