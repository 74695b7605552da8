import { test } from "x";
export const a = 1;
