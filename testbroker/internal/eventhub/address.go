package eventhub

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// An Address names a partition for a consumer group.
type Address struct {
	Group     string // as configured
	Partition int
}

// A Layout is the form of the endpoint.
type Layout struct {
	Path       string   // the name of the event hub
	Groups     []string // consumer groups
	Partitions int
}

// Management is the last segment of the address for questions about the event hub.
const Management = "$management"

// Owns reports whether a path lies below the event hub.
func (l *Layout) Owns(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.EqualFold(first, l.Path)
}

// Parse parses "{path}/ConsumerGroups/{group}/Partitions/{number}".
func (l *Layout) Parse(path string) (Address, *Error) {
	part := strings.Split(path, "/")
	if len(part) != 5 || !strings.EqualFold(part[0], l.Path) || !strings.EqualFold(part[1], "ConsumerGroups") ||
		!strings.EqualFold(part[3], "Partitions") {
		return Address{}, l.missing(path)
	}
	group, ok := l.group(part[2])
	if !ok {
		return Address{}, l.missing(path)
	}
	number, err := l.Partition(part[4])
	return Address{group, number}, err
}

// missing refuses an unknown name. Clients know the refusal by its first and last words.
func (l *Layout) missing(path string) *Error {
	return errorf(NotFound, "The messaging entity '%s' could not be found. The event hub is %s, its consumer groups are "+
		"%s.", path, l.Path, strings.Join(l.Groups, ", "))
}

func (l *Layout) group(name string) (string, bool) {
	for _, g := range l.Groups {
		if strings.EqualFold(g, name) {
			return g, true
		}
	}
	return "", false
}

// Partition parses the number of a partition.
func (l *Layout) Partition(text string) (int, *Error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || int(number) >= l.Partitions || text != strconv.FormatUint(number, 10) {
		return 0, errorf(OutOfRange, "The specified partition is invalid for an EventHub partition sender or receiver. It "+
			"should be between 0 and %d. Partition: %q", l.Partitions-1, text)
	}
	return int(number), nil
}

// PartitionOf returns the partition of a device's events.
func (l *Layout) PartitionOf(device string) int {
	sum := fnv.New32a()
	sum.Write([]byte(device))
	return int(sum.Sum32() % uint32(l.Partitions))
}
