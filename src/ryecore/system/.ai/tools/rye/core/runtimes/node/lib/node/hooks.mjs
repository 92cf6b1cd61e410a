// rye:signed:2026-11-22T01:22:09Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:yEyZXLPnMCrGGk_npCv_wJCVfnqzcT2_rpXKxHTSvxe8a3kzYccTp0BbiyBDopJAvgOieJ_2FFjkv3eyGXW6Dw:ee9cfdad9a9671f7
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
