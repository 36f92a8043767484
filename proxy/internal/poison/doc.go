// Package poison overwrites buffers that are returned to a pool, so that tests detect spans
// that still point into them. It does so in builds with -race or -tags poison only.
package poison
