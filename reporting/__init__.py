"""The pages made from a run's report: for people (HTML) and for CI systems (JUnit XML)."""
