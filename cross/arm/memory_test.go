package arm

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hubline-iot/hubline/cross/arm/board"
)

// inspector reads the memory of an emulated board while it runs, over the control connection of
// QEMU (QMP). The firmware does not notice, and needs no code for it.
type inspector struct {
	mu      sync.Mutex // one command at a time
	control net.Conn
	replies *bufio.Scanner
	file    string
	layout  layout // zero: the RAM is not read
	deepest int    // bytes of stack that a goroutine used, at most
	stacks  int    // number of stacks, at most; the collector finds those of ended goroutines late
}

// layout is where TinyGo's linker has put the heap.
type layout struct {
	ramStart, heapStart, heapEnd uint64
	metadata                     uint64 // address of the pointer to the states of the blocks
}

// layoutOf reads the symbols of a firmware, and how many bytes of RAM its sections take.
func layoutOf(t *testing.T, path string) (l layout, static int) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Sections {
		if s.Flags&(elf.SHF_ALLOC|elf.SHF_WRITE) == elf.SHF_ALLOC|elf.SHF_WRITE {
			static += int(s.Size)
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]*uint64{"_globals_start": &l.ramStart, "_heap_start": &l.heapStart, "_heap_end": &l.heapEnd,
		"runtime.metadataStart": &l.metadata}
	for _, s := range symbols {
		if p := wanted[s.Name]; p != nil {
			*p = s.Value
			delete(wanted, s.Name)
		}
	}
	if len(wanted) > 0 {
		t.Fatalf("the firmware lacks symbols: %v", wanted)
	}
	return l, static
}

// inspect accepts QEMU's control connection.
func inspect(t *testing.T, listener net.Listener) *inspector {
	t.Helper()
	control, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	i := &inspector{control: control, replies: bufio.NewScanner(control), file: filepath.Join(t.TempDir(), "memory")}
	if err := i.command("qmp_capabilities", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	return i
}

// command executes a command of QMP.
func (i *inspector) command(name string, arguments map[string]any) error {
	request, err := json.Marshal(map[string]any{"execute": name, "arguments": arguments})
	if err != nil {
		return err
	}
	if _, err := i.control.Write(request); err != nil {
		return err
	}
	for i.replies.Scan() {
		var reply struct {
			Return *json.RawMessage `json:"return"`
			Error  *json.RawMessage `json:"error"`
		}
		switch err := json.Unmarshal(i.replies.Bytes(), &reply); {
		case err != nil:
			return err
		case reply.Error != nil:
			return fmt.Errorf("%s: %s", name, *reply.Error)
		case reply.Return != nil:
			return nil
		} // else an event, or the greeting
	}
	return fmt.Errorf("%s: no reply: %w", name, i.replies.Err())
}

// object is an allocated object of the heap. A stack is one too.
type object struct {
	memory []byte
	stack  bool
}

// used returns how much of a stack was in use at most: it was zero in the beginning, and grows
// downwards to the canary.
func (o *object) used() int {
	for k := 2 * wordSize; k < len(o.memory); k++ {
		if o.memory[k] != 0 {
			return len(o.memory) - k
		}
	}
	return 0
}

const (
	wordSize  = 4
	blockSize = 4 * wordSize
	// canary is the word at the end of a goroutine's stack, by which TinyGo detects overflows.
	canary = 0xb83bf575
)

// heap returns the allocated objects.
func (i *inspector) heap() ([]object, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.layout
	if l == (layout{}) {
		return nil, nil
	}
	err := i.command("pmemsave", map[string]any{"val": l.ramStart, "size": l.heapEnd - l.ramStart, "filename": i.file})
	if err != nil {
		return nil, err
	}
	ram, err := os.ReadFile(i.file)
	if err != nil {
		return nil, err
	}
	metadata := uint64(binary.LittleEndian.Uint32(ram[l.metadata-l.ramStart:]))
	if metadata <= l.heapStart || metadata >= l.heapEnd {
		return nil, nil // the firmware has not made its heap
	}
	states, blocks := ram[metadata-l.ramStart:], ram[l.heapStart-l.ramStart:metadata-l.ramStart]
	var all []object
	for b := 0; (b+1)*blockSize <= len(blocks); b++ {
		block := blocks[b*blockSize:]
		switch state := states[b/4] >> (b % 4 * 2) & 3; {
		case state == 2 && len(all) > 0: // the object continues
			last := &all[len(all)-1]
			last.memory = last.memory[:len(last.memory)+blockSize]
		case state&1 != 0: // an object begins
			all = append(all, object{memory: block[:blockSize], stack: begins(block, canary)})
		}
	}
	return all, nil
}

// begins reports whether the word is one of the first two of the object: the first may describe it
// to the collector.
func begins(block []byte, word uint32) bool {
	return binary.LittleEndian.Uint32(block) == word || binary.LittleEndian.Uint32(block[wordSize:]) == word
}

// measure updates the depth of the deepest stack. It returns how many bytes the objects have that
// are no stacks.
func (i *inspector) measure() (other int, err error) {
	all, err := i.heap()
	stacks := 0
	for k := range all {
		if o := &all[k]; o.stack {
			i.deepest = max(i.deepest, o.used())
			stacks++
		} else {
			other += len(o.memory)
		}
	}
	i.stacks = max(i.stacks, stacks)
	return other, err
}

// stackMargin is what must remain of the deepest stack, for interrupts and for what a board's own
// callbacks need.
const stackMargin = 1 << 10

// checkStacks expects stacks of the documented size to be large enough.
func checkStacks(t *testing.T, m *machine) {
	t.Helper()
	if d := m.ram.deepest; d == 0 || d > board.StackSize-stackMargin {
		t.Errorf("the deepest goroutine used %d bytes of stack, want %d at most", d, board.StackSize-stackMargin)
	}
	t.Logf("the deepest goroutine used %d bytes of its stack of %d; at times %d stacks", m.ram.deepest, board.StackSize,
		m.ram.stacks)
}
