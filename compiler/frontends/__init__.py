"""Front ends: one folder an exchange format, each from files to a :class:`nnefc.ir.network.Network`."""
