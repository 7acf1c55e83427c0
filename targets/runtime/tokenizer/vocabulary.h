/* The vocabulary of a language model, as `compiler/tokenizer/serialize.py` writes it into a library.
 *
 * All numbers are little-endian. Members that are called offsets count bytes from the beginning of the vocabulary. */
#ifndef NNEFC_TOKENIZER_VOCABULARY_H
#define NNEFC_TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NNEFC_NO_TOKEN UINT32_MAX

/* How the tokens of a piece of text are chosen. */
typedef enum nnefc_token_model {
    NNEFC_BPE_MERGES, /* byte-pair encoding: the pair of tokens with the lowest rank is merged first */
    NNEFC_BPE_SCORES, /* SentencePiece's: two neighbors merge if their text is a token; the lowest rank first */
    NNEFC_UNIGRAM,    /* the segmentation with the highest sum of scores */
    NNEFC_WORDPIECE   /* the longest token first, from the left */
} nnefc_token_model;

enum {
    NNEFC_BYTES_ARE_SYMBOLS = 1,   /* tokens have any bytes, else whole characters */
    NNEFC_WHOLE_WORDS = 2,         /* a piece that is a token is not split */
    NNEFC_BYTE_FALLBACK = 4,       /* characters that no token has become tokens of their bytes */
    NNEFC_FUSE_UNKNOWN = 8,        /* successive unknown characters are one unknown token */
    NNEFC_DECODE_METASPACE = 16,   /* U+2581 is decoded to a space */
    NNEFC_DECODE_STRIP_FIRST = 32, /* one space at the beginning of a decoded text is removed */
    NNEFC_DECODE_WORDS = 64,       /* tokens are decoded to words with spaces between */
    NNEFC_DECODE_CLEAN_UP = 128,   /* and no space stands before punctuation */
    NNEFC_DROP_UNKNOWN = 256,      /* what no token stands for is removed before symbols merge */
    NNEFC_DECODE_DROP_FIRST = 512, /* U+2581 in the first token of a decoded text is removed */
    NNEFC_DECODE_PARTS = 1024      /* a token with the prefix continues a word */
};

/* Kinds of tokens. */
typedef enum nnefc_token_kind { NNEFC_TEXT_TOKEN, NNEFC_ADDED_TOKEN, NNEFC_CONTROL_TOKEN, NNEFC_BYTE_TOKEN } nnefc_token_kind;

/* Two tokens that merge into a third. */
typedef struct nnefc_merge {
    uint32_t right, rank, merged;
} nnefc_merge;

/* A step that text takes before its tokens are chosen. */
typedef struct nnefc_text_step {
    uint32_t kind; /* an nnefc_step_kind */
    uint32_t flags;
    uint32_t table; /* offset */
    uint32_t text;  /* offset of a size and as many bytes; of NNEFC_STEP_COMPOSE the combining classes,
                      of NNEFC_STEP_ADDED the automaton of the characters of words, or 0 */
} nnefc_text_step;

typedef enum nnefc_step_kind {
    NNEFC_STEP_ADDED,   /* takes tokens out whose text is in the text as it is */
    NNEFC_STEP_PREPEND, /* puts a text before each piece */
    NNEFC_STEP_REPLACE, /* replaces the matches of an automaton */
    NNEFC_STEP_MAP,     /* replaces characters */
    NNEFC_STEP_REORDER, /* sorts successive marks by their combining class */
    NNEFC_STEP_COMPOSE, /* composes characters */
    NNEFC_STEP_STRIP,   /* removes white space from the ends of each piece */
    NNEFC_STEP_SPLIT    /* splits pieces at the matches of a pattern */
} nnefc_step_kind;

enum { NNEFC_PREPEND_ONCE = 1, NNEFC_PREPEND_UNLESS_THERE = 2 };
enum { NNEFC_REPLACE_SURROUNDS = 1 }; /* the text is put on both sides of a match, which stays */
enum { NNEFC_MAP_HANGUL = 1 };
enum { NNEFC_STRIP_LEFT = 1, NNEFC_STRIP_RIGHT = 2 };
enum { NNEFC_SPLIT_REMOVED, NNEFC_SPLIT_ISOLATED, NNEFC_SPLIT_WITH_PREVIOUS, NNEFC_SPLIT_WITH_NEXT, NNEFC_SPLIT_CONTIGUOUS, NNEFC_SPLIT_INVERT = 8 };
enum { NNEFC_ADDED_STRIPS_LEFT = 1, NNEFC_ADDED_STRIPS_RIGHT = 2, NNEFC_ADDED_SINGLE_WORD = 4 };

#define NNEFC_CLASS_BLOCK 128

/* Classes of code points: those of one class are the same to all patterns. */
typedef struct nnefc_classes {
    uint16_t block_of[0x110000 / NNEFC_CLASS_BLOCK]; /* of each 128 code points the number of their block of classes */
    uint8_t classes[];                               /* [blocks, 128] */
} nnefc_classes;

typedef struct nnefc_vocabulary {
    uint32_t version; /* 1 */
    uint32_t model;   /* an nnefc_token_model */
    uint32_t flags;
    uint32_t token_count;
    uint32_t unknown;        /* the token of what no other token has, or NNEFC_NO_TOKEN */
    uint32_t max_bytes;      /* of a token's text */
    uint32_t max_characters; /* WordPiece: a longer word is unknown */
    float unknown_score;     /* unigram */
    uint32_t begins;         /* offset of uint32[token_count + 1]: where each token's text begins among the texts */
    uint32_t texts;          /* offset of all texts */
    uint32_t kinds;          /* offset of uint8[token_count], nnefc_token_kind */
    uint32_t ranks;          /* offset of uint32[token_count]: NNEFC_BPE_SCORES */
    uint32_t scores;         /* offset of float[token_count]: NNEFC_UNIGRAM */
    uint32_t slots;          /* offset of uint32[slot_count]: a hash table of texts with tokens, NNEFC_NO_TOKEN if empty */
    uint32_t slot_count;     /* a power of two */
    uint32_t first_merges;   /* offset of uint32[token_count + 1]: the first merge of each left token: NNEFC_BPE_MERGES */
    uint32_t merges;         /* offset of nnefc_merge[], sorted by left and right token */
    uint32_t byte_tokens;    /* offset of uint32[256] */
    uint32_t prefix;         /* offset of the text that WordPiece puts before the parts of a word but its first */
    uint32_t steps;          /* offset of nnefc_text_step[step_count] */
    uint32_t step_count;
    uint32_t classes; /* offset of nnefc_classes */
    uint32_t before;  /* offset of the tokens that come before a text: a number, and as many tokens */
    uint32_t after;   /* offset of those that come after it */
} nnefc_vocabulary;

/* The library's own; `vocabulary.S` includes it. */
extern const nnefc_vocabulary nnefc_vocabulary_data;

/* A text in the vocabulary: its size in bytes, and where it is. */
typedef struct nnefc_vocabulary_text {
    const char *bytes;
    uint32_t size;
} nnefc_vocabulary_text;

static inline const void *nnefc_at(const nnefc_vocabulary *vocabulary, uint32_t offset) {
    return (const char *)vocabulary + offset;
}

static inline nnefc_vocabulary_text nnefc_text_at(const nnefc_vocabulary *vocabulary, uint32_t offset) {
    const uint32_t *size = nnefc_at(vocabulary, offset);
    return (nnefc_vocabulary_text){(const char *)(size + 1), *size};
}

static inline nnefc_vocabulary_text nnefc_token_text(const nnefc_vocabulary *vocabulary, uint32_t token) {
    const uint32_t *begins = nnefc_at(vocabulary, vocabulary->begins);
    const char *texts = nnefc_at(vocabulary, vocabulary->texts);
    return (nnefc_vocabulary_text){texts + begins[token], begins[token + 1] - begins[token]};
}

#define NNEFC_HASH_START UINT32_C(2166136261)

/* FNV-1a, continued with some bytes. */
static inline uint32_t nnefc_hash(uint32_t hash, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)bytes[i]) * UINT32_C(16777619);
    return hash;
}

/* The token whose text is `first` and `second` together, of which `hash` is the hash; NNEFC_NO_TOKEN if none is. Tokens that are
 * taken out of the text as they are, and control tokens, are not found. */
uint32_t nnefc_find_token(const nnefc_vocabulary *vocabulary, uint32_t hash, nnefc_vocabulary_text first, nnefc_vocabulary_text second);

#endif
