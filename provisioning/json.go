package provisioning

import "github.com/hubline-iot/hubline/internal/jsonscan"

// numberMember returns the value of a member that is a number, or a number in quotation marks. It
// is 0 if there is none.
func numberMember(object []byte, name string) int {
	raw, _ := jsonscan.Member(object, name)
	if len(raw) > 1 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	n, ok := jsonscan.Int(raw)
	if !ok || n < 0 || n > maxCode {
		return 0
	}
	return int(n)
}

// maxCode is more than any code of the service.
const maxCode = 999_999
