package stock

func child() bool { return false }
