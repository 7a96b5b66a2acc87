"""Quantities, as pods and slices have them and as the embedded API server gives them back."""

from vdev.sim.objects.amounts import as_given_back, canonical


def test_quantities_are_written_in_one_way(subtests):
    """The same amount with the largest suffix that leaves it whole; what is no quantity stays, to be refused."""
    cases = [
        ("0", "0"),
        ("0Gi", "0"),
        (4, "4"),
        (0.5, "500m"),
        ("999", "999"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("10000", "10k"),
        ("70000", "70k"),
        ("1000000", "1M"),
        ("1024", "1024"),
        ("+5", "5"),
        ("-2000", "-2k"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("1.", "1"),
        (".5Ki", "512"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.3Ki", "307200m"),
        ("40960Mi", "40Gi"),
        ("1e3", "1k"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("much", "much"),
        (True, True),
        (None, None),
    ]
    for written, back in cases:
        with subtests.test(written=written):
            assert back == canonical(written)
            assert back == canonical(back)


def test_all_quantities_of_an_object():
    """At any depth; the given object is not changed."""
    value = {"value": "1024Mi", "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "1024Mi"}}}
    device = {"name": "a", "capacity": {"memory": value}, "consumesCounters": [{"counters": {"m": {"value": "1000"}}}]}
    document = {"spec": {"devices": [{"name": "z"}, device]}}
    found = as_given_back("ResourceSlice", document)
    memory = found["spec"]["devices"][1]["capacity"]["memory"]
    assert ("1Gi", "1Gi") == (memory["value"], memory["requestPolicy"]["validRange"]["max"])
    assert {"value": "1k"} == found["spec"]["devices"][1]["consumesCounters"][0]["counters"]["m"]
    assert "1024Mi" == value["value"]
    assert found == as_given_back("ResourceSlice", found)
    assert document == as_given_back("ConfigMap", document)
