package provisioning

import "github.com/hubline-iot/hubline/internal/jsonscan"

// stringMember returns the text of a member. It is empty if the member is missing, null or not a
// string.
func stringMember(object []byte, name string) string {
	raw, _ := jsonscan.Member(object, name)
	return jsonscan.Text(raw)
}

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

// valueMember returns the JSON of a member, nil if it is missing or null.
func valueMember(object []byte, name string) []byte {
	raw, ok := jsonscan.Member(object, name)
	if !ok || string(raw) == "null" {
		return nil
	}
	return raw
}
