// rye:signed:2026-11-23T13:00:42Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:FLrhV7UmEsQyQi-6U70ZdOt9usEJi-_AGqcH3v4jUFd8ToZXG2JkBNAknFU-1CQkR0uryaPm3KXB9DQpfHe-AA:d20402989ca22ac0
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
