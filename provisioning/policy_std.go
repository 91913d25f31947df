//go:build !tinygo

package provisioning

import "github.com/hubline-iot/hubline/retrypolicy"

// validate returns an error for wrong parameters of Options.Policy.
func validate(p retrypolicy.Policy) error { return retrypolicy.Validate(p) }
