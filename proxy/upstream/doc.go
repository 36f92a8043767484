// Package upstream provides connections to the upstream.
//
// Begin with [ParseTarget], which turns the text of a setting into a [Target], and [Target.UseTLS] if
// the operator configured certificate files. Make one [Group] per [Target.Key] with [NewGroup]: it has
// a [Pool] for each address of the target. Then, per attempt:
//
//   - [Group.Choose] returns the address to use;
//   - [Group.TryPooled] returns a pooled connection, or nil, without blocking, without a context and
//     without allocating;
//   - [Group.Get] does the same and dials if there is none. Its error is always a [*DialError], and
//     means that nothing of the request was sent;
//   - [Endpoint.ReportSuccess] or [Endpoint.ReportFailure] of [Conn.Endpoint] records the result;
//   - exactly one of [Conn.Release], [Conn.Close], [Conn.Abort], [Conn.CloseStale] or
//     [Conn.CloseUnsent] ends the use of a [Conn].
//
// What is promised:
//
//   - A pooled connection is checked before it is returned, or by [Conn.SendChecked] before it is
//     written to (see [GetOptions.Unchecked]). If the upstream closed it, or sent something without a
//     request, it is not used. The upstream may still close it one microsecond later. The caller must
//     expect that on any Conn with Reused set, and report it with CloseStale.
//   - Names are looked up again when their TTL has expired and after any failure, and a dial tries
//     every address.
//   - A TLS stream cut off without close_notify reads as [io.ErrUnexpectedEOF], never as [io.EOF].
//   - No goroutine runs while a pool is unused. One timer per pool runs while it holds idle
//     connections, and one per group while it has connections or an ejected address; [Group.Close]
//     stops them. A lookup has a goroutine for at most 10 s. Health checks, which are off by default,
//     have a goroutine per group from StartHealthChecks until Close.
//   - Only the target, or the addresses of its name, are ever dialed. Proxy settings of the
//     environment are not read.
//
// What to avoid: sharing a Conn between two requests, using a Conn after its end, matching on error
// text (use [DialError.Kind]).
//
// The package has no logger: it returns errors and counts ([Group.Stats]).
package upstream
