package host

import (
	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/update/agent"
)

// maxState is more than the agent stores.
const maxState = 1 << 20

// NewStore returns a Store in a file with mode 0600. Its folder must exist. A power failure leaves
// the old state or the new one.
func NewStore(path string) agent.Store { return store(path) }

type store string

func (s store) Load() ([]byte, error) { return atomicfile.Read(string(s), maxState) }

func (s store) Save(state []byte) error { return atomicfile.Write(string(s), state) }
