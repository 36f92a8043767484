// Package wire is the seam between the protocols and what serves requests. Above it nobody knows whether a
// message goes over HTTP/1.1 or HTTP/2: a header section is written in the [Form] of its wire, and a body is
// pieces, an end and trailers. How bodies are framed and how connections are kept is below it.
package wire
