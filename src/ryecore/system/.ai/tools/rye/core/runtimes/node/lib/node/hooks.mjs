// rye:signed:2026-11-22T15:29:05Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:T22nny94L7W-gUthTQ37r5twArno0tVcVpL8uocdgrp5rJx2dYZ0w5RxliHlz0RSk0SmT6HuLqyQZjaTmnazBw:71d47e616f62c0f7
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
