"""Front ends, one folder per exchange format: translate model files to a :class:`nnefc.ir.network.Network`."""
