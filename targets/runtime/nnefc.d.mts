// Types of nnefc.mjs.

/** Elements of a tensor, dense and row-major: float16 and bfloat16 as bit patterns, booleans as bytes, strings in arrays. */
export type Elements =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array
  | string[];

/** An output's elements, with its shape. */
export type Result<T extends Elements = Elements> = T & { readonly shape: number[] };

/** An input: elements, with their shape where sizes of the network are open. */
export type Input =
  | Elements
  | readonly number[]
  | readonly bigint[]
  | { readonly data: Elements | readonly number[] | readonly bigint[]; readonly shape: readonly number[] };

export type ElementType =
  | "bool"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "float16"
  | "bfloat16"
  | "float32"
  | "float64"
  | "string";

export interface Tensor {
  readonly name: string;
  readonly type: ElementType;
  /** Sizes; an open one is the name of a dimension of the model, or "?". */
  readonly shape: readonly (number | string)[];
  /** What makes an array for it; undefined for strings. */
  readonly array: (new (length: number) => Exclude<Elements, string[]>) | undefined;
  /** Its size in bytes; 0 where sizes are open. */
  readonly bytes: number;
}

export interface Dimension {
  readonly name: string;
  readonly least: number;
  readonly most: number;
  readonly multiple: number;
  readonly typical: number;
}

/** A message of a conversation, as chat templates take it. */
export interface Message {
  readonly role: string;
  readonly content?: unknown;
  readonly [member: string]: unknown;
}

/** The text of tokens that come one after the other. */
export interface TextStream {
  /** The text that a token adds; a character of several tokens comes with the last one of them. */
  add(token: number | bigint): string;
  /** What is left: the beginning of a character that did not end, as U+FFFD. */
  end(): string;
}

/** A network with a session of its own. */
export class Model {
  private constructor();
  readonly name: string;
  readonly target: string;
  readonly compiler: string;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly states: readonly Tensor[];
  readonly dimensions: readonly Dimension[];
  readonly workspaceBytes: number;
  readonly constantBytes: number;
  /** Runs the network once, on inputs by name or in the order of `inputs`. */
  run<Outputs extends Record<string, Elements> = Record<string, Float32Array>>(
    inputs: Readonly<Record<string, Input>> | readonly Input[],
  ): { [Name in keyof Outputs]: Result<Outputs[Name]> };
  /** Allocates memory for all sizes up to these, for others up to the greatest that the network takes. */
  reserve(sizes?: Readonly<Record<string, number>>): void;
  /** Brings the states back to their initial values. */
  reset(): void;
  /** Whether the module has the tokenizer of a language model. */
  readonly hasTokenizer: boolean;
  /** Whether the module renders conversations by the model's chat template. */
  readonly hasChat: boolean;
  /** The tokens of a text: with those before and after it, and control tokens as text, by default. */
  tokenize(text: string, options?: { readonly beginAndEnd?: boolean; readonly control?: boolean }): number[];
  /** The text of tokens, without control tokens by default. */
  detokenize(tokens: readonly (number | bigint)[], options?: { readonly skipControl?: boolean }): string;
  /** What makes text of tokens that come one by one. */
  textStream(options?: { readonly skipControl?: boolean }): TextStream;
  /** A conversation as the model reads it, to be tokenized with `{ beginAndEnd: false, control: true }`. */
  chatText(
    messages: readonly Message[],
    options?: {
      readonly tools?: readonly unknown[] | null;
      readonly addGenerationPrompt?: boolean;
      readonly variables?: Readonly<Record<string, unknown>>;
    },
  ): string;
  /** A further session of the same network, with states of its own. */
  session(): Model;
  /** Frees the session. Closing twice does nothing. */
  close(): void;
}

/** What went wrong: a file that is no network, inputs that do not fit, a failure of the network's code. */
export class NnefcError extends Error {}

export type Feature = "relaxed-simd" | "relaxed-udot" | "relaxed-sdot" | "atomics";

/** Whether this engine runs modules for targets with a feature. */
export function supports(feature: Feature): boolean;

/** A file's name (where there are files), an address, a response, a file's bytes, or a compiled module. */
export type Source = string | URL | Response | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

/** Loads a network; of a list, the first whose needs this engine meets. */
export function load(
  source: Source | readonly (Source | { readonly source: Source; readonly needs?: Feature | readonly Feature[] })[],
  options?: {
    /** How many threads a module uses that is made for several; by default as many as the machine has processors. */
    readonly threads?: number;
  },
): Promise<Model>;
