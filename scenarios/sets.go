package scenarios

// set is a name for several built-in scenarios, in the order in which a table shows them.
type set struct {
	Name    string
	Summary string
	Members []string
}

// sets returns the built-in sets.
func sets() []set {
	return []set{{"origin", "barriers, write cache and commits a second on XFS: the test of 2009 as it comes out today", []string{
		"origin-barriers", "origin-nobarrier", "origin-no-flush", "origin-ext4-nobarrier", "origin-cache-off", "origin-protected"}}}
}

// Expand returns the names that a set stands for; any other name stands for itself.
func Expand(name string) []string {
	for _, s := range sets() {
		if s.Name == name {
			return s.Members
		}
	}
	return []string{name}
}

// SetsText lists the sets for people, a line each.
func SetsText() (text string) {
	for _, s := range sets() {
		text += s.Name + ": " + s.Summary + "\n"
	}
	return text
}
