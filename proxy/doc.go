// Package proxy forwards HTTP requests to upstreams and retries what is safe and
// worth retrying.
//
// New makes a Server from a Config; Listen opens its sockets; Serve runs until its
// context ends and then drains; Reload puts another Config in force for the requests
// that begin from then on. A Server is safe for concurrent use. Decisions come from
// package policy, bytes on the wire from package http1, connections from packages
// downstream and upstream; package exchange owns what happens between them.
//
// The way of a request:
//
//  1. A listener (listeners.go) takes a connection; clients.go gives it a client slot
//     (package slots), or makes it wait in the accept queue, or disconnects another client for it
//     (evict.go). uploads.go bounds the bodies that are awaited, turnaway.go responds to clients without
//     a slot.
//  2. conn.serve (serve.go) reads the headers of one request after another, or those of one stream of
//     HTTP/2 (http2.go, package http2). What follows does not know which: see package wire.
//  3. Exchange.Serve (package exchange) finds the route. Request.Prepare (package request) fixes what
//     the retry rules need to know.
//  4. Exchange.run (loop.go) is the retry loop: admit, attempt, decide, wait. Each turn begins with
//     Admitter.Admit (package admission): rate-limit pause, rate limit, and the queue of the upstream.
//     It fills a Ticket.
//  5. Attempt.Make (package attempt) gets a connection (connect.go) and sends the request (send.go). A body
//     that is large or slow is sent by a second goroutine (pump.go).
//  6. It waits for the headers of the response (await.go, response.go). A hedge (hedge.go) may race it.
//  7. decide (decide.go) settles the Ticket with what the attempt says about the upstream, and asks the
//     policy whether to retry.
//  8. Before a retry the failed response is kept (bufferedresponse.go) and the rest of the request body
//     read. Then the policy says after how long, and wait waits (package request); it ends at once if
//     the client leaves or the process drains.
//  9. conclude (conclude.go) relays the last real response (relay.go, package response), or a response of
//     our own if there never was one, or asks the fallback (fallback.go).
//  10. Report.Done (package report) counts one outcome; the connection reads its next request.
//
// Each part of the server's state has an owner. listenerSet has the sockets (listeners.go),
// clients the slots (clients.go, clientcosts.go, streamslots.go), and connections the connected
// clients (connections.go). drainState is the progress of a drain (drain.go), and parked is what
// remains of an idle connection (park.go). Reload replaces the settings (server.go). shared.go
// applies the decisions of other processes in a fleet.
package proxy
