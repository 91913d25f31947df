package agent

import (
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// ErrRestart is what Run returns when a Handler asked for a restart of the program. After it, call
// New and Run again.
var ErrRestart = errors.New("update: a step asks for a restart; restart the program")

const proto = "update"

func fault(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Scope: transport.ScopeOperation, Proto: proto, Err: errors.New(text)}
}
