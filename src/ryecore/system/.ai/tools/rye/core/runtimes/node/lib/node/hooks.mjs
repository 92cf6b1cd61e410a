// rye:signed:2026-11-23T00:14:48Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:OFzQyiD1JoOuv1aWDSoB14QAHL989eWv-JD1oaMb643i3dBR40dyQCPEosLUJy94m_P6-QRl6cLiT0fef0bBDQ:1cfe0c4e124e9b9f
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
