// Package request holds one request of a client: its headers and those sent upstream, its
// deadlines, its body, and what the retry rules need to know. The body is kept within the retry
// buffer so that it can be replayed. How a request is served is in package exchange.
package request
