/* SPDX-License-Identifier: Apache-2.0 */
/* Stars that cross into a neighbour's slab, and those that it sees of the next one. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "particles.h"

/* Gives stars that have left the slab to the ranks beside it, until each is where it belongs. */
void exchange_own(struct stars *stars, const struct slab *slab);
/* Tells both neighbours of the stars close to them: their ghosts. */
void exchange_ghosts(struct stars *stars, const struct slab *slab);

#endif
