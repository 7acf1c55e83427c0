"""Schedule rules that hold for every GPU; a back end lists them in their order, and adds its own."""
