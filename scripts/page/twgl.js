// What of twgl.js the page uses; everything else is left out of the bundle.
export {createBufferInfoFromArrays, createProgramInfo, drawBufferInfo, setBuffersAndAttributes, setUniforms} from "twgl.js";
