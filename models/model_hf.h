/* The config.json of a Hugging Face checkpoint, as transformers 4 and 5 write it, read as a model. What a file leaves
 * out is what the architecture's configuration class in transformers says. Rotary scaling (YaRN) and quantised weights
 * change neither sizes nor FLOP and are passed over. */
#ifndef MODELS_MODEL_HF_H
#define MODELS_MODEL_HF_H
#include "models/model.h"

/* Whether a document is such a file rather than one of ours. */
int model_hf_is(const struct cfg *c);
/* ERR_CONFIG, with the place in the file: an architecture that is not known, layers in a pattern that models cannot
 * have, another activation than silu, a key that is missing. Not yet checked by model_check. */
enum err model_hf_fill(struct model *m, const struct cfg *c, struct diag *d);

#endif
