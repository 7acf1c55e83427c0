"""Schedule rules that hold for every GPU; a back end, such as `schedule/cuda`, adds those for its own instructions."""
