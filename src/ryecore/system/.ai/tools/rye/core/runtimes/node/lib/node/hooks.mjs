// rye:signed:2026-11-23T00:01:49Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:Ha0TsCbYyc1bcQJ2QDzwHxu6MGUCPWyne2IAtBhtyhYILQd1T1kF83B1_Yph3oJxbnZUXtrYOZcX4dZwv30gDg:803b0db9e645e763
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
