// Package request has one request of a client: its headers and those sent upstream, its deadlines,
// its body, which is kept within the retry buffer so that it can be sent again whole, and what the retry
// rules need to know. It does not know how the request is being served; package exchange does that.
package request
