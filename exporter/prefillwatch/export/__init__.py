"""What leaves this project as metrics and over the admin port."""
