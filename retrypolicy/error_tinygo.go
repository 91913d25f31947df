//go:build tinygo

package retrypolicy

import "github.com/hubline-iot/hubline/internal/errchain"

func isCause(cause, target error) bool { return errchain.Has(cause, target) }
