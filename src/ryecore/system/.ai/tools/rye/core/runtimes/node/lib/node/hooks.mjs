// rye:signed:2026-11-28T07:36:48Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:IUbAehHNgRFhMkZGrzTT5e8YlIfR3_EPMvsC4Qz5wVd6LqP5xs66EYV4BEk2xFnZ8jYhEcUYgbcdgNskXAabCQ:d7428a5352481d0d
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
