/* Chooses, among the networks that a library has for several kinds of processors, the one for this processor: the last whose
 * instructions it has, and that the system lets it use. The environment variable NNEFC_LEVEL names one to choose instead,
 * if this processor has its instructions. If there is none that it can run, the first is chosen, which nnefc_create refuses. */
#include "isa_levels.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "log/log.h"
#include "machine/cpu.h"

nnefc_model nnefc_this_model;

static const nnefc_model *_Atomic chosen; /* by the first thread; null before */
static atomic_bool is_copied;

static bool can_run(const nnefc_description *level) {
    for (uint32_t i = 0; i < level->cpu_feature_count; i++)
        if (!nnefc_cpu_has(level->cpu_features[i])) return false;
    for (uint32_t i = 0; i < level->cpu_feature_count; i++)
        if (!nnefc_cpu_permit(level->cpu_features[i])) return false;
    return true;
}

/* Whether a target is called so; options of it may follow its name. */
static bool is_called(const char *target, const char *name) {
    size_t length = strlen(name);
    return length > 0 && strncmp(target, name, length) == 0 && (target[length] == '\0' || target[length] == ' ');
}

static const nnefc_model *best(void) {
    const char *name = getenv("NNEFC_LEVEL");
    for (uint32_t i = 0; name != NULL && i < nnefc_level_count; i++)
        if (is_called(nnefc_levels[i]->description.target, name) && can_run(&nnefc_levels[i]->description))
            return nnefc_levels[i];
    for (uint32_t i = nnefc_level_count; i-- > 1;)
        if (can_run(&nnefc_levels[i]->description)) return nnefc_levels[i];
    return nnefc_levels[0];
}

void nnefc_choose_level(void) {
    if (atomic_load_explicit(&is_copied, memory_order_acquire)) return;
    const nnefc_model *found = NULL, *own = best();
    if (atomic_compare_exchange_strong(&chosen, &found, own)) found = own;
    /* Other threads may write the same at the same time: none waits for another, which might be missing in a forked child. */
    memcpy(&nnefc_this_model, found, sizeof nnefc_this_model);
    atomic_store_explicit(&is_copied, true, memory_order_release);
}

void nnefc_log_chosen_level(void) {
    const char *name = getenv("NNEFC_LEVEL"), *target = nnefc_this_model.description.target;
    if (name != NULL && *name != '\0' && !is_called(target, name))
        nnefc_log_message(NNEFC_LOG_WARNING, "NNEFC_LEVEL is \"%.40s\", which the library does not have, or this processor cannot run: %.100s is used",
                          name, target);
}
