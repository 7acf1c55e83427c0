// Registers that warpgroups give back and take (`setmaxnreg`), a part of runtime.cpp. A block has as many as its launch took for it;
// a warpgroup that takes more waits until others have given up enough of theirs.

constexpr unsigned ALL_REGISTERS = 65536;
unsigned registers_of[MAX_THREADS / WARPGROUP], wanted_registers[MAX_THREADS / WARPGROUP], spare_registers;

void begin_registers() {  // a block, with as many as `__launch_bounds__` of its threads lets a thread have
  const unsigned share = ALL_REGISTERS / ((block_threads + 31) / 32 * 32) / 8 * 8;
  for (unsigned &each : registers_of) each = share < 256 ? share : 255;
  spare_registers = 0;
}

void wake_warpgroup(unsigned group) {
  for (unsigned i = group * WARPGROUP; i < (group + 1) * WARPGROUP; ++i) threads[i].state = READY;
}

// Gives waiting warpgroups what they want, as far as there is enough.
void distribute_registers() {
  for (unsigned group = 0; group < count / WARPGROUP; ++group) {
    if (threads[group * WARPGROUP].state != AT_REGISTERS) continue;
    const unsigned more = (wanted_registers[group] - registers_of[group]) * WARPGROUP;
    if (more > spare_registers) continue;
    spare_registers -= more;
    registers_of[group] = wanted_registers[group];
    wake_warpgroup(group);
  }
}

void set_registers(unsigned wanted, bool rises, int line) {
  if (cluster > 1) emulator_fail("setmaxnreg of a block of a cluster is not emulated");
  const unsigned group = current / WARPGROUP, first = group * WARPGROUP;
  if (first + WARPGROUP > count) emulator_fail("setmaxnreg of threads that are no whole warpgroup");
  if (wanted % 8 || wanted < 24 || wanted > 256) emulator_fail("setmaxnreg of a number of registers that there is not");
  if (rises ? wanted < registers_of[group] : wanted > registers_of[group])
    emulator_fail("setmaxnreg takes registers with dec, or gives them back with inc");
  threads[current].line = line;
  threads[current].state = IN_WARPGROUP;
  unsigned arrived = 0;
  for (unsigned i = first; i < first + WARPGROUP; ++i) arrived += threads[i].state == IN_WARPGROUP && threads[i].line == line;
  if (arrived == WARPGROUP) {
    wanted_registers[group] = wanted;
    for (unsigned i = first; i < first + WARPGROUP; ++i) threads[i].state = AT_REGISTERS;
    if (!rises) {
      spare_registers += (registers_of[group] - wanted) * WARPGROUP;
      registers_of[group] = wanted;
    }
    distribute_registers();
    if (threads[current].state == READY) return;
  }
  pause_thread();
}

bool explain_registers() {
  for (unsigned i = 0; i < count; ++i) {
    if (threads[i].state != AT_REGISTERS) continue;
    const unsigned group = i / WARPGROUP;
    say("warpgroup %u of block (%u, %u, %u) waits in setmaxnreg (line %d) for %u registers a thread; %u of the block are left", group,
        blockIdx.x, blockIdx.y, blockIdx.z, threads[i].line, wanted_registers[group] - registers_of[group], spare_registers);
    return true;
  }
  return false;
}
