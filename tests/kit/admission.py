"""Evaluates admission policies on requests as the API server does.

CEL's reference implementation evaluates the expressions; without it, the tests are skipped. This module implements the
rest of the API server's behavior: which requests match a policy, and that an error denies the request.
"""

import functools

import pytest

ERROR = "an expression failed"  # denies the request, because the policy has `failurePolicy: Fail`


class Failed(Exception):
    """An expression that could not be evaluated."""


def evaluated(expression, data):
    """Check and evaluate an expression. Raises Failed."""
    cel = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, which evaluates CEL, is not installed")
    value = _compiled(expression, frozenset(data)).eval(data=data)
    if value.type() == cel.Type.ERROR:
        raise Failed(value.plain_value())
    return value.plain_value()


@functools.cache
def _compiled(expression, names):
    """Compile an expression. Cached, because compilation takes most of the time and there are few expressions."""
    from cel_expr_python import cel

    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN)).compile(expression)


def concerns(rule, request):
    """Whether a rule of the policy matches a request, by group, version, resource and operation."""
    resource = "/".join(filter(None, (request["resource"]["resource"], request.get("subResource"))))
    asked = (request["resource"]["group"], request["resource"]["version"], resource, request["operation"])
    return all(
        word in rule[key] or "*" in rule[key]
        for word, key in zip(asked, ("apiGroups", "apiVersions", "resources", "operations"), strict=True)
    )


def refusal(spec, request, before, after):
    """Return why the policy denies a request; empty if it allows the request."""
    if not any(concerns(rule, request) for rule in spec["matchConstraints"]["resourceRules"]):
        return ""
    data = {"request": request, "oldObject": before, "object": after}
    try:
        if not all(evaluated(each["expression"], data) for each in spec["matchConditions"]):
            return ""
        variables = {}
        for each in spec["variables"]:
            variables[each["name"]] = evaluated(each["expression"], data | {"variables": variables})
        data["variables"] = variables
        for each in spec["validations"]:
            if not evaluated(each["expression"], data):
                return evaluated(each["messageExpression"], data) if "messageExpression" in each else each["message"]
    except Failed:
        assert "Fail" == spec["failurePolicy"]
        return ERROR
    return ""


def check_policy(subtests, policy, binding, requests):
    """Check the result of each request, that no validation is redundant, and that the policy is in force."""
    spec = policy["spec"]
    for name, (request, before, after, reason) in requests.items():
        with subtests.test(name=name):
            assert reason == refusal(spec, request, before, after)
    for number in range(len(spec["validations"])):
        with subtests.test("without a validation", number=number):
            rest = {**spec, "validations": [each for at, each in enumerate(spec["validations"]) if at != number]}
            assert any(reason != refusal(rest, *request) for *request, reason in requests.values())
    assert {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} == binding["spec"]
    assert "Fail" == spec["failurePolicy"]
