//go:build small

package serve

import (
	"errors"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
)

// newFleet returns an error if sharing is configured. Without the error, each process would use
// the whole rate limit and budget, many times the intended total.
func newFleet(s *config.Settings, _ *zap.Logger) (sharer, error) {
	if s.SharedEngine.Set() {
		return nil, errors.New("this program was built without sharing (tag small); expected the image made by make image-full, or a program from the release archives (docs/how-to/image.md)")
	}
	return nil, nil
}
