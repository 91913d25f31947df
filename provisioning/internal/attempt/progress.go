// Package attempt has what a registration needs that is part of an attempt to connect: waits,
// reports of its progress, and a sink that notices a refusal after the connection.
package attempt

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Wait waits before a registration that is part of an attempt to connect with cfg. The error is
// that of ctx.
func Wait(ctx context.Context, cfg *transport.Config, d time.Duration) error {
	switch {
	case d <= 0:
		return nil
	case cfg.Wait != nil:
		return cfg.Wait(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// interval is how often progress is reported.
const interval = time.Second

// Report calls progress until stop is called, so that the time-out of an attempt does not end a
// registration that waits as the service asked. progress may be nil.
func Report(progress func()) (stop func()) {
	if progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				progress()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
