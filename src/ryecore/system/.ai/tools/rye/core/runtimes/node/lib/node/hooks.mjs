// rye:signed:2026-11-23T02:00:08Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:WepMYGJIhZA3XtUDcQmbqgWrZRU2irQwEXVtASuk6yo9G35U5t2F8l8gwB63NZZUt8C78l9X6TRQ8LrEpQIwAA:902ac92e49e49785
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
