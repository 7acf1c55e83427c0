// Device code includes this name; under emulation everything comes from emulator.h, which is included before all else.
#pragma once
