//go:build small

package main

import (
	"errors"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

// newFleet refuses to go on alone where sharing is asked for: a rate limit or a budget
// would then be each process's own, many times what was meant.
func newFleet(s *settings.Settings, _ *zap.Logger) (sharer, error) {
	if s.SharedEngine.Set() {
		return nil, errors.New("this program was built without sharing (tag small); expected the image made by make image-full, or a program from the release archives (docs/image.md)")
	}
	return nil, nil
}
