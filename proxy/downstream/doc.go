// Package downstream handles the connections of clients as bytes: the read buffer, deadlines,
// waits without a buffer, and the ways to end a connection. It does not parse requests; package
// proxy reads requests from a Conn and responds on it.
package downstream
