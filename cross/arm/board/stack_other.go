//go:build !tinygo || !baremetal

package board

import "time"

// stacksAreSmall reports false: stacks grow, or are large.
func stacksAreSmall(func() time.Time) bool { return false }
