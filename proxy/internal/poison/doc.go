// Package poison overwrites buffers on their way back into a pool, so that a test sees at once
// whatever still points into one: in builds with -race or -tags poison, and not at all in others.
package poison
