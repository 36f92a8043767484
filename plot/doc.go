// Package plot describes figures and draws them on a terminal.
//
// Fill a Figure: panels with axes and series, everything as plain numbers. Then
// either call Text, which needs nothing but a width, or hand it to package
// plot/picture for PNG and SVG. A Figure travels as JSON (see Decode), which is
// how the commands that compute something hand their pictures to the command
// that draws them: the proxy's own binary does not carry a drawing library or
// fonts. For the same reason this package imports only the standard library,
// and a test keeps it so.
//
// Everything here is pure: no file, no terminal, no clock. Values of all types
// may be read by many goroutines at once as long as nobody writes them.
package plot
