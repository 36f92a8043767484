// Package plot describes figures and draws them on a terminal.
//
// Fill a Figure: panels with axes and series of plain numbers. Then call Text, which only needs a
// width, or pass it to package plot/picture for PNG and SVG. A Figure can be encoded as JSON (see
// Decode): commands that compute something pass it to the command that draws, so that the proxy's
// own binary contains no drawing library and no fonts.
//
// All functions are pure: they use no file, no terminal and no clock. Values of all types are safe
// for concurrent reads.
package plot
