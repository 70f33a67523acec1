package admission

import "slices"

// newcomers are the orders, ascending, that the store has enrolled for this
// process since the snapshot was built: the snapshot does not show them yet,
// and whoever joins after them would be told their place.
type newcomers []int64

// mostNewcomers bounds what one snapshot's time can bring; a longer line is no
// longer counted one by one.
const mostNewcomers = 4096

func (n *newcomers) add(order int64) {
	at, known := slices.BinarySearch(*n, order)
	if known || len(*n) >= mostNewcomers {
		return
	}
	*n = slices.Insert(*n, at, order)
}

// forget drops those that a snapshot of that room time holds.
func (n *newcomers) forget(roomTime int64) {
	at, _ := slices.BinarySearch(*n, roomTime+1)
	*n = slices.Delete(*n, 0, at)
}

// ahead counts those with a smaller order.
func (n newcomers) ahead(order int64) int64 {
	at, _ := slices.BinarySearch(n, order)
	return int64(at)
}
