package lifetime

import (
	"cmp"
	"context"
)

// Cause returns why ctx ended, nil if it has not. With Go 1.23, which boards may use, context.Cause
// returns nil for a Context that ended before a parent of package context.
func Cause(ctx context.Context) error { return cmp.Or(context.Cause(ctx), ctx.Err()) }
